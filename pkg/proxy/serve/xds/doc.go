// Package xds tells gRPC clients and Envoys that choose endpoints themselves what this node's kernel would choose for
// them, and which tiers come next. Such clients ask by xDS, Envoy's protocol to discover listeners, clusters and
// endpoints.
//
//	name.go         which Service port a resource's name means (pure)
//	endpoints.go    what is kept of the decisions about a Service, as it is sent (pure)
//	message.go      requests and responses, byte by byte (pure)
//	stream.go       what one client asked for and was told: a request, and what is there, make a response (pure)
//	table.go        the Services, and who waits for news of which: a selection.Reader
//	session.go      one stream of a client
//	server.go       gRPC
//	usagetracker.go       what each client holds, and may hold
//	connections.go  a listener that closes what is not admitted
//
// It is aggregated discovery in the protocol's first form, the state of the world: listeners with their routes inline,
// clusters, and their endpoints. The first priority is what the kernel's table has on this node. The others are the tiers
// behind it, in the order of the Service's owner, so that a client whose endpoints fail goes on by itself.
//
// # Why the messages are written by hand
//
// Envoy's API as generated code registers its descriptors when the program starts, used or not. Measured with this
// daemon, stripped, at rest, without Services, as the mean of three starts:
//
//	                                                  binary     resident
//	without                                           45.1 MB    35.1 MiB
//	gRPC and these messages by hand                   +1.8       +1.6
//	gRPC and a .proto of our own, cut to what is used +1.9       +4.2
//	gRPC and Envoy's types for endpoints alone        +5.0       +4.4
//	gRPC and Envoy's types for all three              +9.7       +8.4
//	the same with go-control-plane's server and cache +10.0      +7.6
//	a program of its own with the latter              +18.7      +14.7 while it runs, and it needs a protocol to feed it
//
// The generated code cannot be loaded later: it is package initialization, and Go links no library at run time without C.
// Lite or opaque forms (vtprotobuf, the opaque API) are methods on the same registered types. So a user without xDS
// pays for gRPC alone, and tests compare every byte with Envoy's own types and try real clients (e2e/xds).
package xds
