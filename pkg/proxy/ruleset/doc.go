// Package ruleset defines the desired content of the nftables tables: the static chains and sets, the elements that
// each Service owns, and the batch of operations that leads from the current content to the desired one.
//
// Everything here is a value or a function of values. The package can print everything in nft's syntax (text.go). It
// does not depend on netlink, Kubernetes, clocks or logs. Package nft writes a Batch to the kernel; Tables applies it
// in memory.
//
// Where to make a change: a rule, a chain or a set is in layout.go, dispatch.go, affinity.go and set.go; a statement
// of a rule is in statement.go, and for the kernel in statement.go of package nft; the elements of a Service are in
// port.go and elements.go, and their comments in comment.go; lists of source ranges are in sources.go; what a partial
// sync writes is in plan.go, and in which order in order.go; what a full sync writes is in fullsync.go; the steps of a
// large Service are in step.go.
//
// # Tables
//
// Each family has one table, "ip vicinity" or "ip6 vicinity". 'proxy render' prints them, and the scenarios in the
// testdata of the sync hold many examples. The key of a frontend is "address . protocol . port": a ClusterIP, an
// external IP or the IP of a load balancer. The key of a node port is "protocol . port", without an address.
//
//	for frontends              for node ports            key or elements
//	services                   nodeports                 : class                            how: over N slots, by client; reject; drop
//	dispatch                   same                      : class : verdict                  one per class and per dedicated map
//	chain lb-N                 same                                                         picks one of N slots
//	chain lb-N-local-L         same                                                         picks one of L for external clients
//	endpoints                  nodeport-endpoints        . slot : address . port            all endpoints, except those in dedicated maps
//	endpoints-…                same                      slot : address . port              the endpoints of one port
//	chain lb-…/…               same                                                         picks one of its slots
//	restricted                                           : number                           load balancers with source ranges
//	set sources                                          number . first . last address      the ranges of all lists
//	chain source-ranges                                                                     drops clients outside the list
//	set external-cluster       nodeport-cluster                                             policy Cluster: masquerade
//	set external-local         nodeport-local                                               policy Local: keep the client
//	sticky-ports               nodeport-sticky-ports     : number                           session affinity: the Service port
//	sticky-outside             nodeport-sticky-outside   : number                           the same for external clients
//	chain sticky-SECONDS-SHARD nodeport-sticky-…                                            finds a client's endpoint, or picks one
//	affinity-SHARD             same                      port . client : endpoint           numbers of port and endpoint
//	numbered                   same                      protocol . number : address . port the endpoint of a number
//	numbered-collided          same                      the same                           where two numbers collide
//	sticky                     nodeport-sticky           : class                            clients without an entry
//	sticky-dispatch            same                      class : verdict                    the same
//	sticky-endpoints           nodeport-sticky-endpoints . slot : number                    the endpoint in each slot
//	set cluster-ips            nodeport-ips              address                            refuses undefined ports; addresses of node ports
//	set hairpin                same                      address . address . proto . port   endpoints on this node, which may dial themselves
//	                           chain localhost-nodeports                                    counts and rejects (kube-proxy's feature gate)
//	chain refuse               same                                                         resets TCP; else port unreachable
//
// # Rules of the layout
//
// Each was measured; 'make bench' measures them again (BenchmarkWithOthers, BenchmarkAffinity).
//
// Frontends have comments. An element of services and nodeports has the comment "shop/web:http", so 'nft list ruleset'
// names the Service and its port. Such an element takes 96 bytes in the kernel instead of 64, and a first sync takes
// 5 % more CPU time; a change takes no more. Nothing depends on comments, and they are not read back: a table without
// them counts as equal, and gets them with the full sync of the next start.
//
// Big maps hold data, and no verdicts. The kernel validates the whole table for each verdict that is added.
//
// A port may have a dedicated map: if it has more than 256 frontends, or if its frontends times its slots are more
// than 1,024 and more than eight times their sum. In the map of all endpoints it would cost the product. In a dedicated
// map it costs the sum, and another endpoint changes none of its frontends.
//
// A list of source ranges is elements, with no set, chain or verdict of its own. It has a number, and exists once for
// all frontends that use it. So the cost of a change depends only on its own list, a hundred frontends with one list
// cost as much as one, and changes take as long with 10,000 lists as without. The set is a hash: in one interval set
// for all lists the kernel's time would grow with the square of the number of ranges. A packet takes one lookup for
// each prefix length in use, multiples of the highest power of two first. A prefix of an odd length is stored as its
// two halves, so there are at most 16 lookups over IPv4 and 64 over IPv6, of some 0.1 µs.
//
// An ordinary change adds no verdict, because the kernel visits all verdicts of a table when one is added: 0.5 µs for
// each pair of local and all endpoints (externalTrafficPolicy: Local), dedicated map, and timeout of session affinity.
// So the classes of 1 to 32 endpoints, reject and drop are always in the table, with their chains. A changed number of
// endpoints takes 1.3 times as long with 2,206 dedicated maps or pairs as without; before, it was 7 to 9 times. With
// 500 timeouts of session affinity it takes 1.0 times as long; before, it was 2.5. A first sync pays 34 elements and 32
// chains per family, some 0.35 ms. The first Service with a number of endpoints above 32, a pair of such numbers, a
// dedicated map, or a number of endpoints with session affinity still adds one: 0.2 to 0.3 ms alone, 0.5 ms with 500 of
// them, 1.3 to 1.5 ms with 2,206.
//
// The packet's priority carries the class, and then the slot, from one rule to the next: 'nft list' aborts on a map
// lookup that feeds another one in the same rule. No qdisc uses these values (e000: and above), and nat-postrouting
// restores the priority. No mark is read or written: marks belong to the CNI.
//
// A rule that is added and deleted has no lookup in a big map, because the kernel walks a map for each rule that is
// added for it. So lb-N only picks a slot, and one chain serves all frontends of a class.
//
// The client's origin (a pod, this node, or neither) is matched in the few rules that depend on it, by the configured
// detector and by 'fib saddr type local'. The packet carries nothing for it: postrouting matches again.
//
// Conntrack decides about masquerading, from the original tuple, in the order in which a frontend is found: ClusterIP,
// external addresses, node ports. So a connection to another frontend on a port with a node port's number is not
// mistaken for a connection to that node port. What another program translated is never masqueraded, whichever frontend
// it dialled: what we translate has the conntrack label 86. The label needs no set and no element, and only first
// packets meet it. A priority would be lost in ip_forward, and a set of endpoints could not show which program
// translated a connection.
//
// After routing our chains come before those of others, at srcnat - 1. Once a NAT chain has translated the source, the
// kernel calls no further one, and a CNI that masquerades would hide the connection from ours.
//
// A packet may see two states of the tables: it reads class, slot and endpoint one after the other, and a commit may
// come between. So a plan has two batches. The first adds what elements refer to, the second adds the elements. The
// cleanup that follows deletes what an earlier step may still refer to. A packet that matches nothing is dropped, and
// retransmitted.
//
// Affinity maps hold the numbers of Service ports and of endpoints; both numbers are in the priority. So a bounded
// number of maps and chains serves any number of Services, and the removal of an endpoint deletes one element,
// whatever the number of its clients. A client whose number has no endpoint any more loses its entry, and gets another
// endpoint. All of this happens before the destination is translated, because ip_forward replaces the priority.
//
// Numbers survive a restart. Those of ports are read back from sticky-ports. Those of endpoints are hashes of their
// addresses, and are read back, from numbered-collided, only where two of a port collide: the kernel's time to dump a
// map grows with the square of its size. A port that outgrows 256 or 4,096 endpoints gets numbers of another size, and
// its clients lose their entries once. A port that never exceeds 256 endpoints keeps its numbers.
//
// There are 18 affinity maps: 16 for ports with up to 256 endpoints, each port in the one that the fewest use, and one
// for each larger size. The kernel bounds each to 65,535 clients. There are two chains for each map and timeout in
// use, and at most eight timeouts, because the kernel visits all chains that a verdict may reach when another verdict
// is added.
//
// 10,000 Services with session affinity cost twice as much as without: 396 instead of 198 ms for the first sync, 616
// instead of 304 ms for a restart, 80 to 101 instead of 49 to 89 µs for an endpoint, with 60,000 clients or none.
//
// Demand is counted in a table of its own, by elements with a counter for each frontend of a Service with a load
// bound. It counts where a packet has passed the filters, at the NAT hooks of postrouting and input, by conntrack's
// original tuple: neither a packet that a network policy drops nor a retransmitted SYN counts. Its chains translate
// nothing, and come before those that translate the source. No sync changes the counts, and while nobody reads /demand
// there is no table. A connection that is not counted costs one lookup in a hash, or two if it dialled a node port:
// the conntrack label 87 distinguishes those.
//
// Counters have names, so full syncs leave them as they are: counters in rules would start at zero again.
//
// All base chains are of type nat. They see the first packet of each flow, so established flows cost nothing.
//
// The order of slots depends on history: an endpoint that stays keeps its slot if it can, and others fill the gaps.
// Slots are picked at random, so traffic does not depend on the order.
package ruleset
