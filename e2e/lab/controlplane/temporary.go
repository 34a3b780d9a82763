package controlplane

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
)

// RunTemporary runs etcd and a kube-apiserver on loopback while do runs, and removes all of it afterwards. Builds of
// missing programs are reported to progress.
func RunTemporary(ctx context.Context, progress io.Writer, do func(*ControlPlane) error) (err error) {
	programs, err := binaries.Build(ctx, progress, binaries.Etcd, binaries.Kubernetes)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("/dev/shm", "vicinity-control-plane-") // etcd is fast on a tmpfs
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	plane, err := Start(ctx, Config{Dir: dir, Programs: programs})
	if err != nil {
		return err
	}
	defer plane.Stop()
	return do(plane)
}
