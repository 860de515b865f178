package settings

import (
	"log/slog"
	"path/filepath"

	"clustermaster/config"
	"clustermaster/salt/mastergrains"
)

// Grains are the grains of the master itself. release is the release of Salt that it reports.
func Grains(o *config.Options, release string, log *slog.Logger) mastergrains.Own {
	return mastergrains.Own{ID: o.ID, Release: release, Log: log,
		File: filepath.Join(filepath.Dir(o.ConfFile), "grains"),
		Option: func() (any, error) {
			v, err := o.Now("grains")
			return Value(v), err
		},
	}
}
