// Package conntrackgc ends connections that lead to an endpoint which may no longer answer them.
//
// The kernel translates the first packet of a connection by our rules and all later ones by the connection's entry in
// conntrack. A client of UDP does not notice that its endpoint has left: it goes on sending from the same port, each
// packet keeps the entry alive, and nothing ever answers. So the entry is deleted, and the next packet meets the rules as
// if it were the first.
//
// TCP and SCTP end their connections themselves, and an open one is never ended. But a client that dials sends its SYN
// again and again, for two minutes, to the endpoint that the first one was sent to. If that endpoint left meanwhile,
// the dial is drawn anew: its entry is deleted, too. So is the remainder of a closed connection, which would
// lead a client that reuses the port to the endpoint that left.
//
// What a list said is old by the time an entry is deleted: the connection may have been answered, or begun anew, and the
// endpoint may be back. So every entry is judged again right before it is deleted, by what is in force then. A dial must
// have been found unanswered twice, and where the kernel can, it tests that it still is.
//
// It knows which entries contradict what package serviceindex says. It does not know why an endpoint may answer.
package conntrackgc
