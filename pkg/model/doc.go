// Package model holds Services, EndpointSlices and Nodes as plain values, and the state of the cluster that they form.
//
// It does not use Kubernetes API types, clocks, logs, sockets or nftables. Package convert turns API objects into these
// values and rejects invalid ones. So this package relies on valid ports and addresses, and on names that fit into a
// kernel object's name.
//
// The frontends of a Service are in frontend.go, the addresses that serve node ports in node.go, and the rules for
// which Service owns a frontend in claims.go. Which change makes which Service dirty is in cluster.go, for load-bounded
// Services in bounded.go. The limits per Service are in join.go.
//
// To add a demotion reason, add a row to demotion.go: the order of the rows is their rank, a row holds the texts and
// the Node label, and the label is then watched. A reason without a label needs a sender of Change.Demotions. The codes
// of findings are in finding.go.
package model
