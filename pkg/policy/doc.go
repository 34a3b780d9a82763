// Package policy parses the words in which a Service's owner says where connections may go: annotations and fields.
//
// The proxy and the webhook share it, so that the webhook denies exactly what the proxy would ignore. It knows nothing of
// endpoints, nodes or the kernel, and its parsers never panic, whatever the input.
package policy
