// Package demand measures how the connections to a Service are distributed over zones, and publishes the result. One
// replica of the webhook pulls connection counts from all proxies and adds them up by zone. For Services with measured
// demand it writes a ServiceDemand. For others, metrics and an Event report if endpoints get more than the load bound
// allows, because it is planned with another demand.
//
// The estimator, the aggregation and the choice of writes are pure: each sample carries its time. Each round reads the
// published state from the objects, so a new leader continues from it, and the next round decides a failed write again.
//
// README.md explains the estimator, and has measurements of what each part of it is for. To change how reports are added
// up, start in aggregator.go; for the statistics, in estimate.go and window.go. The rounds are in publisher.go, and
// Events in events.go. changes.go and object.go decide what is written, and reconcile.go writes it. Package cluster reads
// Nodes and Services, and decides for which demand is published; pull requests the counts, writequeue has the budget of
// writes, and overload compares load bounds with measured demand.
package demand
