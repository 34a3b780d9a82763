package node

// Plan is what the first process of a node does, step by step. It decides nothing itself.
type Plan struct {
	Hostname string
	// Root is the folder that becomes the node's root.
	Root string
	// Groups are the folders of the cgroups that the node's processes join. They become the roots of its cgroup
	// namespace.
	Groups []string
	// Leaf is a cgroup v2 below the node's that the first process moves on to, because a group with processes cannot hand
	// its controllers to groups below. Empty with cgroup v1, which has no such rule.
	Leaf     string
	Mounts   []Mount
	Programs []Program
}

// Mount is a file system that the node sees.
type Mount struct {
	Source string
	Target string // below the node's root
	Type   string // "bind" for a folder or file of the machine
	Flags  uintptr
	Data   string
	// File says that the target is a file.
	File bool
}

// Program is a program that runs as long as the node: if one ends, the node does.
type Program struct {
	Name      string
	Path      string
	Arguments []string
	// Socket is the Unix socket by which others find the program. The next program starts when this one listens there.
	Socket string
}
