// Package fabric builds small networks of nodes and pods in the network namespaces of one process.
//
//	                     switch (a bridge, 172.30.0.254, fd00:30::fe)
//	       ┌───────────────────┼─────────────────────┐
//	node 172.30.0.1     node 172.30.0.2       host 172.30.0.201
//	  ├─ pod 10.244.1.1   ├─ pod 10.244.2.1
//	  └─ pod 10.244.1.2   └─ pod 10.244.2.2
//
// Nodes forward and route to each other's pods; the fabric translates no addresses. Each pod has a routed
// point-to-point link to its node and not a port of a bridge, so that traffic between two pods of one node passes the
// node's conntrack as well. The pods of a bridge node are ports of one bridge, but still reach each other only through
// their node. A host is a machine outside the cluster. It reaches pods and ClusterIPs through a given node, and other
// addresses by routes.
//
// Every namespace is anonymous: it has no name in the file system and ends with this process, even if the process is
// killed. Links are created inside the fabric's own namespaces, so the machine's own namespace never changes. The
// fabric runs no program. It needs root.
//
// To add a kind of machine or link, see node.go and links.go; a protocol of the servers and clients, server.go and
// connection.go.
package fabric
