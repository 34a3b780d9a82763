// Package selection decides which endpoints of a Service port this node uses, and why.
//
// It is a function of values: the Service's policy, the usable endpoints, and where the decision is made. It knows no
// clock, log, metric, Kubernetes type or nftables object. Every outcome carries a Reason, which explain, metrics and
// events print.
package selection
