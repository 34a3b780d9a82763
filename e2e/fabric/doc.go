// Package fabric builds small networks of nodes and pods in the network namespaces of one process.
//
//	                     switch (a bridge, 172.30.0.254, fd00:30::fe)
//	       ┌───────────────────┼─────────────────────┐
//	node 172.30.0.1     node 172.30.0.2       host 172.30.0.201
//	  ├─ pod 10.244.1.1   ├─ pod 10.244.2.1
//	  └─ pod 10.244.1.2   └─ pod 10.244.2.2
//
// Nodes forward and route to each other's pods; nothing in the fabric translates addresses. A pod hangs on its node by
// a routed point-to-point link instead of a bridge, so that traffic between two pods of one node passes the node's
// conntrack as well. The pods of a bridge node hang on one bridge instead, and still reach each other through their
// node only. A host is a machine outside the cluster that reaches pods and ClusterIPs through a node of its choice,
// and other addresses by routes.
//
// Every namespace is anonymous: it has no name in the file system and lives only as long as this process, even if that
// is killed. Links are made inside the fabric's own namespaces, so the machine's own namespace is never touched. No
// program is run. Root is needed.
package fabric
