// Package reachability decides which nodes do not answer this one, so that new connections may leave their endpoints.
//
// Three things have to come together. Connections to endpoints on a node stay unanswered: that is a suspicion, which
// anybody may raise. Then this node dials that node itself, and no dial is answered. And meanwhile others do answer: a
// node that is cut off judges nobody. In doubt everything stays as it was.
//
// It is pure. Its clock is an argument; its caller looks at conntrack and dials, and reports the results. "Unreachable"
// is always from this node. Kubernetes' taint of that name is what the control plane thinks.
package reachability
