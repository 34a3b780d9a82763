package clusterstatus

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Text writes a line per node, and the number of nodes that are in sync.
func Text(to io.Writer, nodes []Node) error {
	table := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	sanitize.Fprintf(table, "NODE\tIN SYNC\tLAST SYNC\tINVALID OBJECTS\tAPI SERVER\tPROBLEM\n")
	inSyncCount, withInvalidCount := 0, 0
	for i := range nodes {
		node := &nodes[i]
		inSync, synced, apiServer := "no", "-", "ok"
		if node.InSync {
			inSync = "yes"
			inSyncCount++
		}
		if node.InvalidObjects > 0 {
			withInvalidCount++
		}
		if !node.Synced.IsZero() {
			synced = fmt.Sprintf("%s ago", time.Since(node.Synced).Round(time.Second))
		}
		if len(node.Interruptions) > 0 {
			var resources []string
			for _, interruption := range node.Interruptions {
				resources = append(resources, interruption.Resource)
			}
			apiServer = "interrupted: " + strings.Join(resources, ", ")
		}
		if node.Pod == "" {
			apiServer = "-"
		}
		sanitize.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%s\n", node.Node, inSync, synced, node.InvalidObjects, apiServer, cmp.Or(node.Problem, "-"))
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	summary := fmt.Sprintf("%d of %s.", inSyncCount, sanitize.CountOf(len(nodes), "node is in sync", "nodes are in sync"))
	if withInvalidCount > 0 {
		summary += " Invalid objects keep their last known good versions, if there were any; 'proxy status' on a node names them."
	}
	if _, err := sanitize.Fprintf(to, "\n%s\n", summary); err != nil {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}
