package metrics

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/monitoring"
)

// watchedWith are the alerts and the dashboard of the proxy.
var watchedWith = monitoring.Files{Folder: "proxy", Job: "vicinity-proxy"}

func TestPrometheusAcceptsTheAlertsWhichFireWhenTheyShouldAndDescribeWhatToDo(t *testing.T) {
	watchedWith.CheckAlerts(t)
}

func TestEachPanelOfTheDashboardIsNamedExplainedAndUnderstoodByPrometheus(t *testing.T) {
	watchedWith.CheckDashboard(t)
}

// Each metric of ours must be used somewhere, too.
func TestTheDashboardAndTheAlertsNameOnlyMetricsThatExist(t *testing.T) {
	watchedWith.CheckNames(t, withAllSeries().registry, documented(t))
}
