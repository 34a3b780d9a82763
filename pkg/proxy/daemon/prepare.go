package daemon

import (
	"log/slog"
	"os"
	"strconv"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/config"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/kernel/conntrack"
)

// oomScoreFile is the file of this process's oom_score_adj.
const oomScoreFile = "/proc/self/oom_score_adj"

// setOOMScore sets this process's oom_score_adj, if score is not nil.
func setOOMScore(log *slog.Logger, score *int32) {
	if score == nil {
		return
	}
	if err := os.WriteFile(oomScoreFile, []byte(strconv.Itoa(int(*score))), 0); err != nil {
		log.Warn("failed to set oom_score_adj", "oomScoreAdj", *score, "error", err)
	}
}

// Prepare implements --init-only.
func Prepare(log *slog.Logger, settings *config.Settings) error {
	table, err := conntrack.Dial()
	if err != nil {
		return err
	}
	newKernelSettings(log, settings, false, model.Families).check()
	setOOMScore(log, settings.OOMScoreAdj)
	return table.Close()
}
