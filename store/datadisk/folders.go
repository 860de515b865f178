package datadisk

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Folder is a folder that a master serves from, and the option that names it.
type Folder struct{ Option, Path string }

// Folders watches whether folders answer: the disk or the file server behind one may hang. It is
// safe for concurrent use.
type Folders struct {
	log  *slog.Logger
	all  []Folder
	look func(path string)

	told map[Folder]bool // the log names them; used by Run alone

	mu       sync.Mutex           // guards underWay
	underWay map[Folder]time.Time // looks that have not ended, and when they began
}

const (
	// folderEvery is the time between two looks at a folder.
	folderEvery = 5 * time.Second
	// folderHangs is how long a look may take before the folder counts as hanging.
	folderHangs = 10 * time.Second
)

// WatchFolders makes the watch; Run looks. It leaves out paths with __env__, which name no folder,
// and those that come twice. A nil reg registers no metrics.
func WatchFolders(all []Folder, log *slog.Logger, reg prometheus.Registerer) *Folders {
	f := &Folders{log: log.With("component", "datadisk"), look: lookInto,
		underWay: map[Folder]time.Time{}, told: map[Folder]bool{}}
	for _, one := range all {
		if !strings.Contains(one.Path, "__env__") && !slices.Contains(f.all, one) {
			f.all = append(f.all, one)
		}
	}
	if reg != nil {
		reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "clustermaster_folder_wait_seconds",
			Help: "How long a folder that files are served from has not answered: the longest of file_roots, pillar_roots and pki_dir. 0: all answer.",
		}, func() float64 { return f.longest().Seconds() }))
	}
	return f
}

// lookInto reads one name of a folder. An error is an answer, too.
func lookInto(path string) {
	dir, err := os.Open(path)
	if err != nil {
		return
	}
	defer dir.Close()
	_, _ = dir.Readdirnames(1)
}

// Run looks at the folders until ctx ends. A look that does not end keeps one thread of the process
// until the folder answers.
func (f *Folders) Run(ctx context.Context) error {
	tick := time.NewTicker(folderEvery)
	defer tick.Stop()
	for {
		for _, one := range f.all {
			f.begin(one)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		f.tell()
	}
}

// begin looks into a folder in the background, unless the last look has not ended.
func (f *Folders) begin(one Folder) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, waits := f.underWay[one]; waits {
		return
	}
	f.underWay[one] = time.Now()
	go func() {
		f.look(one.Path)
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.underWay, one)
	}()
}

// hanging calls each with the folders that hang, in the order of their options.
func (f *Folders) hanging(each func(one Folder, since time.Time)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.all {
		if began, waits := f.underWay[one]; waits && time.Since(began) > folderHangs {
			each(one, began)
		}
	}
}

// tell logs what has changed.
func (f *Folders) tell() {
	hangs := map[Folder]bool{}
	f.hanging(func(one Folder, since time.Time) {
		if hangs[one] = true; !f.told[one] {
			f.log.Error("a folder does not answer: requests for its files wait; look at the disk or the file server behind it (dmesg, mount)",
				"option", one.Option, "path", one.Path, "since", since)
		}
	})
	for one := range f.told {
		if !hangs[one] {
			f.log.Info("a folder answers again", "option", one.Option, "path", one.Path)
		}
	}
	f.told = hangs
}

func (f *Folders) longest() (age time.Duration) {
	f.hanging(func(_ Folder, since time.Time) { age = max(age, time.Since(since)) })
	return age
}

// Beside returns the alarms of others, and a line for each folder that hangs.
func (f *Folders) Beside(others func() []string) func() []string {
	return func() []string {
		out := others()
		f.hanging(func(one Folder, since time.Time) {
			out = append(out, fmt.Sprintf("%s: %s has not answered for %v, and requests for its files wait; look at the disk or the file server behind it (dmesg, mount)",
				one.Option, one.Path, time.Since(since).Round(time.Second)))
		})
		return out
	}
}
