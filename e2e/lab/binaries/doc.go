// Package binaries builds the programs of a Kubernetes cluster from Go modules: Kubernetes itself, etcd, containerd,
// runc, the CNI plugins and CoreDNS. It also builds the programs that tests run together with the proxy.
//
// Each is built from a module of its own in e2e/lab/build, so that none of their dependencies reach the proxy's go.mod.
// A module is built once and kept in the user's cache folder, outside the source tree. The folder's name is a hash of
// everything that the result depends on.
//
// To add a program, add a folder to e2e/lab/build and a Module to module.go.
package binaries
