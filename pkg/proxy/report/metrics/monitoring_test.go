package metrics

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/monitoring"
)

// monitoringFiles are the alerts and the dashboard of the proxy.
var monitoringFiles = monitoring.Files{Folder: "proxy", Job: "vicinity-proxy"}

func TestPrometheusAcceptsTheAlertsWhichFireWhenTheyShouldAndDescribeWhatToDo(t *testing.T) {
	monitoringFiles.CheckAlerts(t)
}

func TestEachPanelOfTheDashboardIsNamedExplainedAndUnderstoodByPrometheus(t *testing.T) {
	monitoringFiles.CheckDashboard(t)
}

// Each metric of ours must be used somewhere, too.
func TestTheDashboardAndTheAlertsNameOnlyMetricsThatExist(t *testing.T) {
	monitoringFiles.CheckNames(t, withAllSeries().registry, documented(t))
}
