"""What a service does when it starts: it opens a reference with `ts.open`, and pays for imports before any request.

It knows nothing of servers and requests. Start with `open.py`.
"""
