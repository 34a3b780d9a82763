// Package syncer makes the kernel agree with the cluster. Its code follows these stages, in order:
//
//	change → model.Cluster → selection → ruleset.Plan → kernel → mirror → handlers → cleanup
//
// It knows the kernel only as two methods (Kernel), the users of its decisions only as selection.Handler, and its
// observer only by events (Observer). It does not log and exports no metrics.
//
// Where to make a change: run.go gathers changes and schedules retries, proxy.go runs a sync and cleans up, and
// backlog.go keeps the pending work of each Service. batch.go decides which changes come first, how much one sync does,
// and when Services with a load bound are planned again. fullsync.go splits a full sync into transactions. rejected.go
// handles the Services that the kernel rejects. handlers.go passes decisions to the handlers.
//
// FuzzObjectToElement goes from the bytes of a manifest to the elements (-fuzzminimizetime 5x). The scenarios in
// pkg/proxy/syncer/testdata/scenarios are rewritten by `go test ./pkg/proxy/syncer -update`.
package syncer
