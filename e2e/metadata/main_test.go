package metadata_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vicinity-proxy/vicinity/e2e/lab/controlplane"
)

// api is the control plane that all tests share: etcd and a kube-apiserver on loopback.
var api *controlplane.ControlPlane

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.FromSlogHandler(slog.DiscardHandler)) // it would complain of being given none
	code := 1
	err := controlplane.During(context.Background(), os.Stderr, func(plane *controlplane.ControlPlane) error {
		api = plane
		code = m.Run()
		return nil
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
