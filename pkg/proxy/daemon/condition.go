package daemon

import (
	"context"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/report/condition"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// newCondition returns the component that writes the Node's condition, if there is a writer. If the kernel has none of
// our rules, the existing condition is older than the last boot, and is set to "Services do not work". If there are
// rules, an earlier proxy has synced, and the condition stays.
func newCondition(ctx context.Context, c *common, writer *condition.Writer) (component, error) {
	if writer == nil {
		return component{}, nil
	}
	keeper := component{run: writer.Run}
	for _, family := range c.conn.Families() {
		has, err := c.conn.HasChain(ctx, family, ruleset.TableName, ruleset.EntryChain)
		if err != nil {
			return component{}, fmt.Errorf("look for rules of an earlier proxy: %w", err)
		}
		if has {
			return keeper, nil
		}
	}
	writer.Set(condition.NoRules)
	return keeper, nil
}
