package metadata_test

import (
	"log/slog"
	"testing"

	"github.com/go-logr/logr"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/vicinity-proxy/vicinity/e2e/site"
)

// api is the control plane that all tests share.
var api *site.Site

func TestMain(m *testing.M) {
	ctrllog.SetLogger(logr.FromSlogHandler(slog.DiscardHandler)) // without a logger it prints a warning
	site.Main(m, &api)
}
