// Package demand measures how the connections to a Service are distributed over zones, and publishes the result. One
// replica of the webhook pulls connection counts from all proxies and adds them up by zone. Where this differs from the
// demand that load bounds assume, metrics and an Event on the Service report the skew. For Services with measured
// demand it writes a ServiceDemand.
//
// The estimator, the aggregation, the choice of writes and the budget are pure: each sample carries its time. Each
// round reads the published state from the objects, so a new leader continues from it, and the next round decides a
// failed write again.
//
// README.md explains the estimator, and has measurements of what each part of it is for. To change how reports are added
// up, start in aggregator.go; for the statistics, in estimate.go and window.go. Pulls are in publisher.go and pull.go,
// Events in events.go. settings.go decides for which Services demand is published, changes.go and object.go what is
// written, plan.go within which budget, and reconcile.go writes it.
package demand
