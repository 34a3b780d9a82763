package admission_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
)

// api is the control plane that all tests share: etcd and a kube-apiserver on loopback.
var api *controlplane.ControlPlane

func TestMain(m *testing.M) {
	code, err := runWithAPI(context.Background(), m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runWithAPI(ctx context.Context, m *testing.M) (code int, err error) {
	programs, err := binaries.Build(ctx, os.Stderr, binaries.Etcd, binaries.Kubernetes)
	if err != nil {
		return 1, err
	}
	dir, err := os.MkdirTemp("/dev/shm", "vicinity-admission-") // etcd is fast on a tmpfs
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	api, err = controlplane.Start(ctx, controlplane.Config{Dir: dir, Programs: programs})
	if err != nil {
		return 1, err
	}
	defer api.Stop()
	code = m.Run()
	return code, theSite.close()
}
