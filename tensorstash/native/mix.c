/* Mixes: the component of each number, by a descent through the tree of weights. */

#include "kernel.h"

/* The inner nodes of a binary tree; of the first n numbers that reach a node, (rest + n * two_left) / two_weight go to
 * its left child. A child is a later node, or ~k for leaf k. */
typedef struct {
  const int32_t *child;                        /* (count, 2) */
  const int64_t *two_left, *two_weight, *rest; /* (count,) */
  const double *ratio, *offset;                /* (count,) of an estimate that is right or one too small */
  int64_t count;
} Tree;

/* The child that number *n of a node goes to; *n becomes its number there. */
INLINE int64_t step_down(const Tree *tree, int64_t node, int64_t *n) {
  uint64_t two_left = (uint64_t)tree->two_left[node], two_weight = (uint64_t)tree->two_weight[node];
  int64_t left = (int64_t)((double)*n * tree->ratio[node] + tree->offset[node]);
  /* the products wrap around, but their difference fits */
  uint64_t rest = (uint64_t)*n * two_left + (uint64_t)tree->rest[node] - (uint64_t)left * two_weight;
  bool low = rest >= two_weight;
  left += low, rest -= low ? two_weight : 0;
  bool right = rest < two_weight - two_left;
  *n = right ? *n - left : left;
  return tree->child[2 * node + right];
}

enum { DESCENTS = 4 };

/* The leaf of each of m numbers below 2^48, and how many smaller numbers have the same leaf. Each step down waits for the
 * one before, so several numbers descend in turn, and the next number takes the place of one that has arrived. */
EXPORT int64_t tensorstash_descend(const Tree *tree, const int64_t *numbers, int64_t m, int32_t *leaf, int64_t *index) {
  for (int64_t k = 0; k < 2 * tree->count; k++)
    if (tree->child[k] >= tree->count || (tree->child[k] >= 0 && tree->child[k] <= k / 2)) return MALFORMED;
  if (tree->count < 1) return MALFORMED;
  for (int64_t i = 0; i < m; i++)
    if (numbers[i] < 0 || numbers[i] >> 48) return i;
  int64_t number[DESCENTS], node[DESCENTS], n[DESCENTS], open = least(DESCENTS, m), next = open;
  for (int64_t j = 0; j < open; j++) number[j] = j, node[j] = 0, n[j] = numbers[j];
  while (open)
    for (int64_t j = 0; j < open; j++) {
      node[j] = step_down(tree, node[j], &n[j]);
      if (node[j] >= 0) continue;
      leaf[number[j]] = (int32_t)~node[j];
      index[number[j]] = n[j];
      if (next < m) number[j] = next, node[j] = 0, n[j] = numbers[next++];
      else open--, number[j] = number[open], node[j] = node[open], n[j] = n[open], j--;
    }
  return DONE;
}
