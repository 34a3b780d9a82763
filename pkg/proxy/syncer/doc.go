// Package syncer makes the kernel agree with the cluster. Its code follows these stages, in order:
//
//	change → model.Cluster → selection → ruleset.Plan → kernel → mirror → readers → sweep
//
// It knows the kernel only as three verbs (Kernel), the users of its decisions only as selection.Reader, and its
// observer only by events (Observer). It logs nothing and knows no metric.
package syncer
