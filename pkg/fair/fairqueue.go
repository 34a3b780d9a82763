package fair

import "maps"

// Queue records the weight that each Namespace was served, so that Namespaces with queued work are served equally. The
// zero value has served nothing. When no work is queued, the caller should start again with the zero value.
type Queue struct {
	virtualTime   int            // the start tag of the Namespace served last; a newly queued Namespace starts there, too
	virtualFinish map[string]int // by Namespace, the finish tags later than virtualTime
}

// OnServed records that an item of a Namespace was served.
func (q *Queue) OnServed(share Share) {
	if q.virtualFinish == nil {
		q.virtualFinish = map[string]int{}
	}
	q.virtualTime = q.virtualStart(share.Namespace)
	q.virtualFinish[share.Namespace] = q.virtualTime + share.Weight
}

func (q *Queue) virtualStart(namespace string) int {
	return max(q.virtualFinish[namespace], q.virtualTime)
}

// Schedule returns all queued items in the order in which they should be served. The caller serves some of them from
// the front, passes each to OnServed, and calls Schedule again next time. Items of one Namespace keep their order.
// Of two items with equal tags, the first in items goes first.
func Schedule[T any](q *Queue, items []T, shareOf func(T) Share) []T {
	maps.DeleteFunc(q.virtualFinish, func(_ string, finishTag int) bool { return finishTag <= q.virtualTime })
	return sortByTag(items, shareOf, q.virtualStart, false)
}
