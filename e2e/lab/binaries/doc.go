// Package binaries builds the programs of a Kubernetes cluster from Go modules: Kubernetes itself, etcd, containerd,
// runc, the CNI plugins and CoreDNS. Likewise those that tests run beside the proxy.
//
// Each comes from a module of its own in e2e/lab/build, so that nothing of it reaches the proxy's go.mod. A module is
// built once and kept in the user's cache folder, outside the tree, under a name made of everything that the result
// depends on.
package binaries
