package node

// Plan configures the first process of a node, which makes no decisions itself.
type Plan struct {
	Hostname string
	// Root is the folder that becomes the node's root.
	Root string
	// Groups are the folders of the cgroups that the node's processes join. They become the roots of its cgroup
	// namespace.
	Groups []string
	// Leaf is a cgroup v2 below the node's to which the first process moves, because a group with processes cannot
	// delegate its controllers to groups below. It is empty with cgroup v1, which has no such rule.
	Leaf     string
	Mounts   []Mount
	Programs []Program
}

// Mount is a mount in the node.
type Mount struct {
	Source string
	Target string // relative to the node's root
	Type   string // "bind" for a folder or file of the machine
	Flags  uintptr
	Data   string
	// File reports whether the target is a file.
	File bool
}

// Program is a program that runs for the node's whole life: if one ends, the node ends.
type Program struct {
	Name      string
	Path      string
	Arguments []string
	// Socket is the program's Unix socket. The next program starts once this one listens there.
	Socket string
}
