// Package reachability is a failure detector: it decides which nodes do not reply to this one, so that new connections
// avoid their endpoints.
//
// An ejection needs three observations. First, connections to endpoints on a node stay unreplied, or neighbour
// discovery does not find the node. This starts a suspicion, and any client can cause it. Second, this node probes the
// suspected node, and no port that used to reply does. Third, other nodes reply to control probes at the same time: an
// isolated node ejects no node. If a result is inconclusive, the node's state does not change.
//
// A node is probed at ports of different programs, because one port may stop replying while its node is healthy: a
// firewall closes it, or a pod fills its accept queue. One is the port of the proxies' /healthz. Another is port 9:
// nothing listens there, so the kernel itself resets the connection, and there is no accept queue to fill. The
// kubelet's port is probed only while the others do not reply, because the kubelet logs each such connection.
//
// A detector handles one IP family, because a network may fail in only one of them. It is pure: its clock is an
// argument and must never go back. The caller reads conntrack, sends probes, and reports the results. "Unreachable"
// always means from this node; Kubernetes' taint of that name is the control plane's view.
//
// To change how long a node has to reply, how often nodes are probed, or a limit on probes, see config.go. What starts
// a suspicion is in detector.go, how one ends in suspicion.go, and when a node is restored in node.go. controls.go
// chooses the control probes.
package reachability
