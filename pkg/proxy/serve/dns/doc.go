// Package dns serves DNS for headless Services: it returns the endpoints that this node's clients should use, instead
// of all endpoints. The node's DNS cache queries it first, and the cluster's DNS second.
//
//	records.go   the records of a Service, from its decisions (pure)
//	question.go  parses the Service, port and type of a query (pure)
//	answer.go    builds the response to a query (pure)
//	write.go     writes the records that fit into a response (pure)
//	table.go     the Services with records: a selection.Handler
//	server.go    UDP and TCP
//	tcp.go       TCP connections
//
// It serves only those names and returns REFUSED for all others, so that the node's DNS cache queries the cluster's DNS
// next. It never forwards, caches or recurses: a process that cannot answer for other names cannot break their answers.
//
// Responses follow version 1.1.0 of Kubernetes' DNS specification and CoreDNS' plugin kubernetes. Which Services have
// records is in selection/headless.go.
package dns
