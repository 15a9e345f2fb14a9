from tensorstash.load import load as load
from tensorstash.plan import Plan as Plan
from tensorstash.plan import plan as plan
from tensorstash.schema import column as column
from tensorstash.stash import Stash as Stash
from tensorstash.stash import open as open
