package metrics

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiserver "k8s.io/apiserver/pkg/admission"
	apiservermetrics "k8s.io/apiserver/pkg/admission/metrics"
	clientmetrics "k8s.io/client-go/tools/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	_ "sigs.k8s.io/controller-runtime" // registers the metrics of every Go program
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/monitoring"
)

// monitoringFiles are the monitoring manifests of the webhook.
var monitoringFiles = monitoring.Files{Folder: "webhook", Job: "vicinity-webhook"}

func TestAlerts(t *testing.T) {
	monitoringFiles.CheckAlerts(t)
}

func TestDashboard(t *testing.T) {
	monitoringFiles.CheckDashboard(t)
}

// TestDashboardAndAlertsUseExistingMetrics checks that metrics, labels and values exist in the webhook or an API
// server, and that each of the webhook's metrics is used somewhere.
func TestDashboardAndAlertsUseExistingMetrics(t *testing.T) {
	scraped := prometheus.Gatherers{webhookMetrics(t), metrics.Registry, apiServerMetrics(t)}
	monitoringFiles.CheckNames(t, scraped, slices.Collect(maps.Keys(documented(t))))
	monitoringFiles.CheckLabels(t, scraped)
}

// webhookMetrics returns the webhook's own metrics, and those that the manager of controller-runtime adds after its
// first request to the API server.
func webhookMetrics(t *testing.T) prometheus.Gatherer {
	t.Helper()
	clientmetrics.RequestResult.Increment(t.Context(), "200", "GET", "localhost")
	registry := prometheus.NewPedanticRegistry()
	r, err := New(registry)
	if err != nil {
		t.Fatal(err)
	}
	r.CertificateExpires(time.Unix(1, 0))
	r.AuthorityExpires(time.Unix(1, 0))
	r.ConfigurationUpdated(time.Unix(1, 0))
	r.Published(time.Unix(1, 0), 0, 0, 0, 0)
	r.Measured(1, 1, 0, 0, map[[2]string]Demand{{"shop", "web"}: {1, 1}})
	return registry
}

// apiServerMetrics returns an API server's metrics about one of our webhooks that it called, failed to call, and did
// not need to call.
func apiServerMetrics(t *testing.T) prometheus.Gatherer {
	t.Helper()
	const name, validating, create = "validate.services.vicinity.dev", "validating", string(apiserver.Create)
	request := apiserver.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "",
		apiserver.Create, nil, false, nil)
	observed := apiservermetrics.Metrics
	observed.ObserveWebhook(t.Context(), name, time.Second, false, request, validating, 200)
	observed.ObserveWebhookFailOpen(t.Context(), name, validating)
	observed.ObserveMatchConditionExclusion(t.Context(), name, "webhook", validating, create)
	for _, kind := range []apiservermetrics.WebhookRejectionErrorType{
		apiservermetrics.WebhookRejectionCallingWebhookError, apiservermetrics.WebhookRejectionNoError,
	} {
		observed.ObserveWebhookRejection(t.Context(), name, validating, create, kind, 500)
	}
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := legacyregistry.DefaultGatherer.Gather()
		isOfAdmission := func(family *dto.MetricFamily) bool {
			return strings.HasPrefix(family.GetName(), "apiserver_admission_")
		}
		return slices.DeleteFunc(families, func(family *dto.MetricFamily) bool { return !isOfAdmission(family) }), err
	})
}
