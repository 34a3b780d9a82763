package admission_test

import (
	"context"
	"fmt"
	"os"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
)

// api is the control plane that all tests share: etcd and a kube-apiserver on loopback.
var api *controlplane.ControlPlane

func TestMain(m *testing.M) {
	code := 1
	err := controlplane.During(context.Background(), os.Stderr, func(plane *controlplane.ControlPlane) error {
		if err := learnVersion(plane.AdminConfig()); err != nil {
			return err
		}
		api = plane
		code = m.Run()
		return theSite.close()
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
