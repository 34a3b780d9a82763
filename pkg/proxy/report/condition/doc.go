// Package condition says on a Node whether its Services work: the condition vicinity.dev/ServicesReady, by which
// another controller may keep pods off a node that cannot reach Services yet.
//
// It is True once the first sync is in the kernel, and means only that. Rules outlive the proxy, so neither a restart
// nor a stuck proxy makes it False: a taint would not help then, and a single cause that stops all proxies would take
// all nodes from the scheduler. It becomes False where a proxy starts and the kernel has no rules: after a boot. Until
// that proxy runs, the API has what the last one wrote; nothing on the node can correct it.
//
// No heartbeat is written. A start reads the Node once, with the right to list Nodes that the proxy has anyway, and
// writes only what is different. What was written is looked at again when the Node may be a new one of the same name.
package condition
