package explain_test

import (
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/explain"
)

func TestARejectedServiceReportsThatTheKernelDiffers(t *testing.T) {
	rejections := []explain.Rejection{
		{Service: "default/web", Message: "add map ip vicinity long: file name too long", Since: time.Unix(0, 0), Tries: 3, HasApplied: true},
		{Service: "default/api", Message: "add chain ip vicinity long: file name too long", Since: time.Unix(0, 0), Tries: 1},
	}
	ports := []explain.PortReport{
		{Service: "default/web", Rejected: &rejections[0]}, {Service: "default/other"}, {Service: "default/api", Rejected: &rejections[1]},
	}
	var page strings.Builder
	if err := write("text")(&page, ports); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{
		"  rejected   An earlier version of this Service is applied on this node: the kernel has rejected this one since 1970-01-01T00:00:00Z, " +
			"3 times so far.\n             add map ip vicinity long: file name too long\n",
		"",
		"  rejected   No version of this Service is applied on this node: the kernel has rejected this one since 1970-01-01T00:00:00Z, " +
			"1 time so far.\n             add chain ip vicinity long: file name too long\n",
	} {
		block := strings.Split(page.String(), "\n\n")[i] + "\n"
		if strings.Contains(block, "rejected  ") != (want != "") || !strings.Contains(block, want) {
			t.Errorf("the report of port %d is\n%swant one that contains\n%s", i, block, want)
		}
	}
}
