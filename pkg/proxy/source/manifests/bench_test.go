package manifests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// BenchmarkDecode reads 44,000 Services as kubectl prints them: one List of some megabytes.
func BenchmarkDecode(b *testing.B) {
	var text strings.Builder
	text.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for i := range 44_000 {
		service := serviceYAML(fmt.Sprintf("s%d", i), fmt.Sprintf("10.%d.%d.%d", 96+i/62500, i/250%250, i%250))
		text.WriteString("- " + strings.ReplaceAll(strings.TrimSpace(service), "\n", "\n  ") + "\n")
	}
	b.SetBytes(int64(text.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if got := decode("all.yaml", []byte(text.String()), convert.View{}); len(got.objects) != 44_000 || !got.isComplete {
			b.Fatalf("%d objects were read, problems %v", len(got.objects), got.problems)
		}
	}
}
