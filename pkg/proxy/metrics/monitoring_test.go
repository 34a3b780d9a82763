package metrics

import (
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/monitoring"
)

// watchedWith is what the proxy is watched with.
var watchedWith = monitoring.Files{Folder: "proxy", Job: "vicinity-proxy"}

func TestPrometheusAcceptsTheAlertsWhichFireWhenTheyShouldAndSayWhatToDo(t *testing.T) {
	watchedWith.CheckAlerts(t)
}

func TestEachPanelOfTheDashboardIsNamedExplainedAndUnderstoodByPrometheus(t *testing.T) {
	watchedWith.CheckDashboard(t)
}

// TestTheDashboardAndTheAlertsNameOnlyMetricsThatExist, and no metric of ours is shown nowhere.
func TestTheDashboardAndTheAlertsNameOnlyMetricsThatExist(t *testing.T) {
	watchedWith.CheckNames(t, withAllSeries().registry, documented(t))
}
