// Package condition writes the Node condition vicinity.dev/ServicesReady, so that another controller can keep pods off
// a node that cannot reach Services yet.
//
// It is True once the first sync is in the kernel, and means nothing else. Rules outlive the proxy, so neither a
// restart nor a stuck proxy makes it False: a taint would not help then, and a single cause that stops all proxies
// would make all nodes unschedulable. It becomes False when a proxy starts and the kernel has no rules: after a boot.
// Until that proxy runs, the API has the last proxy's value; nothing on the node can correct it.
//
// No heartbeat is written. At its start the proxy reads the Node once, which needs only its existing permission to list
// Nodes, and writes only a difference. It reads the Node again when the Node may have been
// replaced by a new one with the same name.
//
// Where to make a change: this package writes the condition, pkg/proxy/daemon sets it (condition.go, observer.go), and
// manifests/node-condition has the permission.
package condition
