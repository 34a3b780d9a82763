// Package reachability is a failure detector: it decides which nodes do not reply to this one, so that new connections
// may leave their endpoints.
//
// Three things have to come together. Connections to endpoints on a node stay unreplied, or the link does not find the
// node: that is a suspicion, which anybody may raise. Then this node probes that node itself, and every port that used to
// reply is silent. And meanwhile other nodes reply: an isolated node ejects nobody. In doubt everything stays as it was.
//
// A node is probed at ports of different owners, because one port may fall silent while its node is well: a firewall
// closes it, or a pod fills its accept queue. The port of the proxies' /healthz is ours. Nothing listens on port 9, so the
// kernel itself resets, and there is no queue to fill. The kubelet's port is probed only while the others are silent: the
// kubelet logs each such connection.
//
// A detector is for one IP family, because a network may fail in one of them only. It is pure. Its clock is an argument,
// and never goes back; its caller reads conntrack and sends probes, and reports the results. "Unreachable" is always from
// this node. Kubernetes' taint of that name is what the control plane thinks.
package reachability
