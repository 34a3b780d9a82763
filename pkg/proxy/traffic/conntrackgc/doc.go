// Package conntrackgc deletes conntrack entries of connections to endpoints that may no longer serve them.
//
// The kernel translates the first packet of a connection by our rules, and all later ones by the connection's conntrack
// entry. A UDP client does not notice that its endpoint was removed: it keeps sending from the same port, each packet
// refreshes the entry, and no reply ever comes. So the entry is deleted, and the next packet is evaluated by the rules
// as if it were the first.
//
// TCP and SCTP close their connections themselves, and an established one is never deleted. But a connecting client
// retransmits its SYN for two minutes to the endpoint that the first one was sent to. If that endpoint was removed in
// the meantime, the entry is deleted too, and the next SYN is load-balanced again. The same applies to the entry of a
// closed connection: a client that reuses the port would be sent to the removed endpoint.
//
// A dump is outdated by the time an entry is deleted: the connection may have received a reply or been reopened, and
// the endpoint may have been added again. So every entry is classified again right before it is deleted, by the current
// snapshot. Two scans must have found a connection unreplied, and where the kernel can, it checks that it still is.
//
// The package decides which entries violate the snapshot of package serviceindex, not why an endpoint may serve. To
// change which entries are deleted, see classify.go; when, reconciler.go and scan.go. How the kernel checks the status
// of an entry as it deletes it is in proxy/kernel/conntrack/unreplied.go. How often conntrack is dumped, and for which
// users, is in scheduler.go of the same package.
package conntrackgc
