// Package dns answers for headless Services: with the endpoints that this node's clients should use, in place of all of
// them. The node's DNS cache asks it first, and the cluster's DNS second.
//
//	records.go   what is answered about a Service, from the decisions about it (pure)
//	question.go  which Service, port and type a query means (pure)
//	answer.go    the answer to a query, byte by byte (pure)
//	table.go     the Services that are answered for: a selection.Reader
//	server.go    UDP and TCP
//	tcp.go       connections that stay
//
// It answers for those names alone and refuses everything else, so that the node's DNS cache asks the cluster's DNS next. It
// never forwards, caches or recurses: a process that cannot answer for others cannot break their answers.
//
// What the answers must be is in version 1.1.0 of Kubernetes' DNS specification
// (https://github.com/kubernetes/dns/blob/master/docs/specification.md); where that leaves something open, they are those
// of CoreDNS' plugin kubernetes.
package dns
