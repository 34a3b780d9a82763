// Package proxy makes the kernel agree with the cluster: it reads the stages aloud, in order.
//
//	change → model.Cluster → selection → ruleset.Plan → kernel → mirror → sweep
//
// It knows the kernel only as three verbs (Kernel) and its observer only as what happened (Observer); it logs
// nothing, knows no metric, and starts no goroutine of its own.
package proxy
