// Package xds serves gRPC clients and Envoys that choose endpoints themselves. They get the endpoints that this node's
// kernel would choose for them, and the tiers that come next. They use xDS, Envoy's protocol to discover listeners,
// clusters and endpoints.
//
//	name.go          parses the Service port in a resource's name (pure)
//	endpoints.go     the retained part of the decisions about a Service, as it is sent (pure)
//	message.go       requests and responses, byte by byte (pure)
//	stream.go        the subscriptions of one stream: builds responses from requests and the table (pure)
//	table.go         the Services, and the sessions that watch them: a selection.Handler
//	session.go       one stream of a client
//	server.go        gRPC
//	usagetracker.go  resources held for each client, and their limits
//	connections.go   a listener that closes connections that are not admitted
//
// It implements aggregated discovery in the protocol's first variant, state of the world: listeners with their routes
// inline, clusters, and their endpoints. The first priority has the endpoints of the kernel's table on this node. The
// others are the tiers behind it (selection/tiers.go), in the order that the Service specifies, so that a client whose
// endpoints fail continues on its own.
//
// # Why the messages are written by hand
//
// Envoy's API as generated code registers its descriptors at program start, used or not. Measured with this daemon,
// stripped, at rest, without Services, as the mean of three starts:
//
//	                                                  binary     resident
//	without                                           45.1 MB    35.1 MiB
//	gRPC and these messages by hand                   +1.8       +1.6
//	gRPC and a .proto of our own, cut to what is used +1.9       +4.2
//	gRPC and Envoy's types for endpoints alone        +5.0       +4.4
//	gRPC and Envoy's types for all three              +9.7       +8.4
//	the same with go-control-plane's server and cache +10.0      +7.6
//	a program of its own with that server             +18.7      +14.7 while it runs, and it needs a protocol to feed it
//
// The generated code cannot be loaded later: it is package initialization, and Go links no library at run time without
// C. Lite or opaque forms (vtprotobuf, the opaque API) are methods on the same registered types. So users without xDS
// pay for gRPC only. Tests compare every byte with Envoy's own types and use real clients (e2e/xds).
package xds
