package backup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	base   = "base"
	former = "base.former" // the base backup that is being replaced
)

// Base makes and checks a base backup and then replaces the earlier one. It must run as the user that PostgreSQL runs
// as, who must own the files.
func (f Folder) Base(ctx context.Context) error {
	unlock, err := f.lockBase()
	if err != nil {
		return noBase(err)
	}
	defer unlock()
	if err := f.makeBase(ctx); err != nil {
		return err
	}
	f.say("Wrote %s.", f.path(base))
	f.say(complete)
	return nil
}

func noBase(err error) error {
	return fmt.Errorf("no base backup was made: %w\nThe earlier base backup, if any, is unchanged", err)
}

// lockBase locks the folder and cleans up after a Base that was interrupted: an incomplete backup is removed, and the
// earlier one gets its name back if the new one does not have it yet.
func (f Folder) lockBase() (unlock func(), err error) {
	if os.Geteuid() == 0 {
		return nil, errors.New("run this as the user that PostgreSQL runs as: sudo -u postgres …")
	}
	if unlock, err = lock(f.Dir); err != nil {
		return nil, err
	}
	if err := f.settle(); err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

func (f Folder) settle() error {
	if err := os.RemoveAll(f.path(base + part)); err != nil {
		return err
	}
	if _, err := os.Stat(f.path(base)); errors.Is(err, os.ErrNotExist) {
		if err := os.Rename(f.path(former), f.path(base)); !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return os.RemoveAll(f.path(former))
}

func (f Folder) makeBase(ctx context.Context) error {
	made := f.path(base + part)
	if err := f.writeBase(ctx, made); err != nil {
		return errors.Join(noBase(err), os.RemoveAll(made))
	}
	err := os.Rename(f.path(base), f.path(former))
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = os.Rename(made, f.path(base))
	}
	if err != nil {
		return errors.Join(noBase(err), f.settle())
	}
	if err := sync(f.Dir); err != nil {
		return fmt.Errorf("the new base backup has replaced the earlier one, which is %s: %w", f.path(former), err)
	}
	if err := os.RemoveAll(f.path(former)); err != nil {
		return fmt.Errorf("the new base backup has replaced the earlier one, which could not be removed: %w", err)
	}
	return nil
}

func (f Folder) writeBase(ctx context.Context, made string) error {
	tools, err := findFor(ctx, adminService, sameVersion, "pg_basebackup")
	if err != nil {
		return err
	}
	err = tools.do(ctx, "pg_basebackup", "--no-password", "--dbname="+adminService, "--pgdata="+made,
		"--checkpoint=fast")
	if err != nil {
		return err
	}
	return checkBase(ctx, made)
}

// checkBase compares a base backup with its manifest, and reads its WAL.
func checkBase(ctx context.Context, dir string) error {
	major, err := versionOf(dir)
	if err != nil {
		return explainPermission(err)
	}
	tools, err := find(ctx, major, sameVersion, "pg_verifybackup")
	if err != nil {
		return err
	}
	if err := tools.do(ctx, "pg_verifybackup", "--quiet", dir); err != nil {
		return fmt.Errorf("%s is not a complete base backup: %w", filepath.Base(dir), err)
	}
	return nil
}

// versionOf returns the major version of the server whose data a folder has.
func versionOf(dir string) (int, error) {
	content, err := os.ReadFile(filepath.Join(dir, "PG_VERSION"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(content)))
}

// VerifyBase checks the base backup. It must run as the user who owns it.
func (f Folder) VerifyBase(ctx context.Context) error {
	unlock, err := f.lockBase()
	if err != nil {
		return err
	}
	defer unlock()
	if err := checkBase(ctx, f.path(base)); err != nil {
		return err
	}
	f.say("%s is complete.", f.path(base))
	f.say(complete)
	return nil
}

// A Recovery replaces the data of a stopped server with the base backup. When the server starts, it replays the WAL up
// to a moment.
type Recovery struct {
	Folder  // with the base backup
	Data    string
	Archive string    // of the WAL
	Moment  time.Time // before the damage
}

const beforeRecovery = ".before"

// ParseMoment reads a time with a zone, like 2026-03-01 12:00:00+00.
func ParseMoment(text string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05Z07:00", time.RFC3339} {
		if at, err := time.Parse(layout, text); err == nil {
			return at, nil
		}
	}
	return time.Time{}, errors.New("the moment must be a time with a zone, like '2026-03-01 12:00:00+00'")
}

func inUTC(at time.Time) string { return at.UTC().Format(time.DateTime + " UTC") }

// Recover prepares the data for the next start of the server. The earlier data stays beside it, with the ending
// .before. It must run as the user that PostgreSQL runs as, while the server is stopped.
func (r Recovery) Recover(ctx context.Context) error {
	unlock, err := r.lockBase()
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	defer unlock()
	if r.Data, err = filepath.Abs(r.Data); err == nil { // the server uses the paths from another folder
		r.Archive, err = filepath.Abs(r.Archive)
	}
	made := r.Data + part
	if err == nil {
		err = r.check(ctx, made)
	}
	if err != nil {
		return fmt.Errorf("nothing was changed: %w", err)
	}
	if err = r.prepare(ctx, made); err == nil {
		err = os.Rename(r.Data, r.Data+beforeRecovery)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("nothing was changed: %w", err), os.RemoveAll(made))
	}
	if err := os.Rename(made, r.Data); err != nil {
		return fmt.Errorf("%s is now %s, and %s is the restored data: rename one of the two to %s: %w",
			r.Data, r.Data+beforeRecovery, made, r.Data, err)
	}
	r.say("%s has the base backup. The earlier data is %s.", r.Data, r.Data+beforeRecovery)
	if err := sync(filepath.Dir(r.Data)); err != nil {
		return err
	}
	r.say("Complete. Start PostgreSQL: it replays the archive up to %s.", inUTC(r.Moment))
	return nil
}

// check returns an error if the recovery cannot succeed.
func (r Recovery) check(ctx context.Context, made string) error {
	if err := r.checkData(made); err != nil {
		return err
	}
	manifest, err := os.Stat(filepath.Join(r.path(base), "backup_manifest")) // the last file of a backup
	if err != nil {
		return fmt.Errorf("there is no base backup: %w", explainPermission(err))
	}
	if made := manifest.ModTime(); r.Moment.Before(made) {
		return fmt.Errorf("the base backup was made at %s, after the moment: pass a folder with an earlier one. If it "+
			"was copied without its times, copy it again with cp -a or rsync -a", inUTC(made))
	}
	if r.Moment.After(time.Now()) {
		return errors.New("the moment is in the future")
	}
	archived, err := os.ReadDir(r.Archive)
	if err != nil || len(archived) == 0 {
		return errors.Join(err, fmt.Errorf("the archive %s has no WAL", r.Archive))
	}
	return checkBase(ctx, r.path(base))
}

// checkData returns an error if the data cannot be replaced.
func (r Recovery) checkData(made string) error {
	parent, err := os.Stat(filepath.Dir(r.Data))
	if err != nil {
		return err
	}
	data, err := os.Stat(r.Data)
	switch _, earlier := os.Lstat(r.Data + beforeRecovery); {
	case errors.Is(err, os.ErrNotExist) && earlier == nil:
		return fmt.Errorf("an earlier recovery was interrupted: rename %s to %s, then begin again",
			r.Data+beforeRecovery, r.Data)
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("there is no folder %s: \"show data_directory\" prints PostgreSQL's. If its disk is new, "+
			"make an empty folder first", r.Data)
	case err != nil:
		return err
	case earlier == nil:
		return fmt.Errorf("%s is the data from before an earlier recovery: rename it, or remove it if it is "+
			"certainly no longer needed", r.Data+beforeRecovery)
	}
	if _, err := os.Lstat(made); err == nil {
		return fmt.Errorf("%s is from a recovery that was interrupted: remove it", made)
	}
	is, above := data.Sys().(*syscall.Stat_t), parent.Sys().(*syscall.Stat_t)
	if int(is.Uid) != os.Geteuid() {
		return errors.New("run this as the user that PostgreSQL runs as, who owns its data")
	}
	if is.Dev != above.Dev {
		return fmt.Errorf("%s is a mount point and cannot be renamed: pass a folder inside it as --pgdata, and "+
			"start PostgreSQL with that folder", r.Data)
	}
	if pid, err := os.ReadFile(filepath.Join(r.Data, "postmaster.pid")); err == nil {
		number, _, _ := strings.Cut(string(pid), "\n")
		return fmt.Errorf("%s is in use by process %s: stop PostgreSQL. If it was killed and does not run any more, "+
			"remove postmaster.pid", r.Data, number)
	}
	return nil
}

// prepare makes a copy of the base backup with the newest WAL of the earlier data and with the target.
func (r Recovery) prepare(ctx context.Context, made string) error {
	if _, err := run(ctx, "cp", "-a", r.path(base), made); err != nil {
		return err
	}
	newest := filepath.Join(r.Data, "pg_wal")
	if _, err := os.Stat(newest); err == nil {
		if _, err := run(ctx, "cp", "-a", newest+"/.", filepath.Join(made, "pg_wal")); err != nil {
			return err
		}
	}
	timeline, err := r.timeline(ctx)
	if err != nil {
		return err
	}
	quote := func(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
	target := "restore_command = " + quote(`cp "`+r.Archive+`/%f" "%p"`) + "\nrecovery_target_time = " +
		quote(r.Moment.UTC().Format("2006-01-02 15:04:05.999999+00")) + "\nrecovery_target_timeline = " +
		quote(timeline) + "\nrecovery_target_action = 'promote'\n"
	settings, err := os.OpenFile(filepath.Join(made, "postgresql.auto.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = settings.WriteString(target)
	if err := errors.Join(err, settings.Sync(), settings.Close()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(made, "recovery.signal"), nil, 0o600)
}

var printedTimeline = regexp.MustCompile(`(?m)^Latest checkpoint's TimeLineID: +(\d+)$`)

// timeline returns the timeline of the earlier data. The archive may have later ones, from recoveries to other moments.
func (r Recovery) timeline(ctx context.Context) (string, error) {
	major, err := versionOf(r.Data)
	if errors.Is(err, os.ErrNotExist) {
		return "latest", nil
	}
	if err != nil {
		return "", err
	}
	tools, err := find(ctx, major, sameVersion, "pg_controldata")
	if err != nil {
		return "", err
	}
	out, err := run(ctx, tools["pg_controldata"], r.Data)
	if err != nil {
		return "", err
	}
	found := printedTimeline.FindStringSubmatch(out)
	if found == nil {
		return "", errors.New("pg_controldata prints no timeline")
	}
	return found[1], nil
}
