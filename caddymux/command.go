package caddymux

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "storage-mux",
		Usage: "<command>",
		Short: "Works with the objects of the storage trees of a config",
		Long: `
Works with the storage trees that a config declares: reads and writes objects,
compares and repairs backends, and explains what a tree would do.

Only the trees are provisioned, not the config as a whole, so that a Caddy that
runs with the same config is not disturbed. Keys are those of the tree: what a
handler puts before them by its option "prefix" is not.

Objects of backends of type memory live in the Caddy that runs. A command takes
such a backend for out of service: it is not read, and what is written reaches
it by the journal of the tree.`,
		CobraFunc: func(parent *cobra.Command) {
			for i := range commands {
				parent.AddCommand(commands[i].cobra())
			}
			parent.SilenceUsage, parent.RunE = true, noCommand
			parent.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
				if words := cmd.Flags().Args(); cmd == parent && len(words) > 0 {
					return noCommand(cmd, words) // what is wrong is the word before the flag
				}
				return err
			})
		},
	})
}

// noCommand is for a word that names none: a script that has it wrong must not take help for success.
func noCommand(parent *cobra.Command, args []string) error {
	if len(args) == 0 {
		return parent.Help()
	}
	var known []string
	for _, one := range parent.Commands() {
		known = append(known, one.Name())
	}
	return fmt.Errorf("unknown command %q, known are %s", args[0], strings.Join(known, ", "))
}

// command is one of the commands. A newcomer is one row.
type command struct {
	use, short, long string
	args             cobra.PositionalArgs
	flags            func(*cobra.Command)
	run              func(*call) error
	looks            bool // at the tree as the config has it: no backend is taken out of service
}

var commands = []command{
	{
		use: "ls [<prefix>]", short: "Lists the keys that begin with a prefix", args: cobra.MaximumNArgs(1),
		long:  "Lists all keys that begin with the prefix, in byte order: size, time of the last change, key.",
		flags: lsFlags, run: runLs,
	},
	{use: "cat <key>", short: "Writes an object to standard output", args: cobra.ExactArgs(1), run: runCat},
	{
		use: "put <key> [<file>|-]", short: "Stores a file, or standard input, as an object", args: cobra.RangeArgs(1, 2),
		long:  "Stores the file as the object, whole or not at all, as a PUT does. Without a file, or with -, it is standard input.",
		flags: putFlags, run: runPut,
	},
	{use: "rm <key>...", short: "Removes objects", args: cobra.MinimumNArgs(1), run: runRm},
	{use: "stat <key>", short: "Describes an object", args: cobra.ExactArgs(1), run: runStat},
	{
		use: "verify", short: "Compares what the backends hold", args: cobra.NoArgs,
		long:  "Compares all backends key by key, says what differs, and exits with 1 if anything does.",
		flags: verifyFlags, run: runVerify,
	},
	{
		use: "repair", short: "Makes the backends agree", args: cobra.NoArgs,
		long: `Copies to each backend what it lacks, and deletes what the journal holds as deleted.
Nothing else is deleted, unless --delete says so.

Where a Caddy runs that has this tree, it does the work, since it knows what is
under way; its admin API is asked for that.`,
		flags: repairFlags, run: runRepair,
	},
	{
		use: "explain", short: "Draws the tree, and says who would be asked", args: cobra.NoArgs,
		long: `Draws the tree as the config has it, with what each backend can do, and says which
backends an operation would ask, in which order, and why not the others.
Nobody is asked for it.`,
		flags: explainFlags, run: runExplain, looks: true,
	},
}

// call is one call of a command.
type call struct {
	ctx    context.Context //nolint:containedctx // a call is one command from its start to its end
	cmd    *cobra.Command
	args   []string
	out    io.Writer
	errOut io.Writer
	json   bool
	trees  *commandTrees
	tree   *tree
}

func (c *command) cobra() *cobra.Command {
	cmd := &cobra.Command{Use: c.use, Short: c.short, Long: c.long, Args: c.args, SilenceUsage: true}
	cmd.Flags().StringP("config", "c", "", "Configuration file; default: the Caddyfile of this folder")
	cmd.Flags().StringP("adapter", "a", "", "Name of the config adapter to apply")
	cmd.Flags().StringP("tree", "t", "", "Name of the tree; not needed when there is one")
	cmd.Flags().String("address", "", "Address of the admin API of a Caddy that runs with this config; default: as the config says")
	cmd.Flags().Bool("json", false, "Write JSON, a line each")
	if c.flags != nil {
		c.flags(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error { return oneLine(c.start(cmd, args)) }
	return cmd
}

// start provisions the trees, opens the one that is meant, and runs the command.
func (c *command) start(cmd *cobra.Command, args []string) (err error) {
	flags := cmd.Flags()
	x := &call{cmd: cmd, args: args, out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr(), json: flagOf(flags.GetBool, "json")}
	// An interrupt ends the process until here: a config may come from a terminal, and nothing is under way.
	x.trees, err = loadTrees(flagOf(flags.GetString, "config"), flagOf(flags.GetString, "adapter"), flagOf(flags.GetString, "address"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.trees.close()) }()
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, stop)() // a second interrupt ends the process, whatever the first one waits for
	x.ctx = ctx
	defer func() {
		if err != nil && ctx.Err() != nil {
			err = errInterrupted
		}
	}()
	if x.tree, err = x.trees.open(ctx, flagOf(flags.GetString, "tree"), !c.looks); err != nil {
		return err
	}
	defer x.tree.release()
	return c.run(x)
}

// errInterrupted is said of a command that was told to end before it was done.
var errInterrupted = errors.New("interrupted")

// hint writes a line to standard error that is no failure.
func (x *call) hint(err error) {
	if err != nil {
		_, _ = fmt.Fprintln(x.errOut, "note:", visible(err.Error()))
	}
}

// flagOf is the value of a flag that is declared.
func flagOf[T any](get func(string) (T, error), name string) T {
	value, err := get(name)
	if err != nil {
		panic(err) // a name that no row declares
	}
	return value
}

func (x *call) flag(name string) string { return flagOf(x.cmd.Flags().GetString, name) }
func (x *call) isSet(name string) bool  { return flagOf(x.cmd.Flags().GetBool, name) }

// lineError is an error on one line.
type lineError struct{ error }

func (e lineError) Error() string {
	lines := strings.FieldsFunc(e.error.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}

func (e lineError) Unwrap() error { return e.error }

func oneLine(err error) error {
	if err == nil {
		return nil
	}
	return lineError{err}
}

// line writes a line of JSON.
func (x *call) line(value any) error {
	enc := json.NewEncoder(x.out)
	enc.SetEscapeHTML(false)
	return enc.Encode(value)
}

// printf writes a line for people. A key or a reason must not break it.
func (x *call) printf(format string, args ...any) error {
	for i := range args {
		if s, ok := args[i].(string); ok {
			args[i] = visible(s)
		}
	}
	_, err := fmt.Fprintf(x.out, format+"\n", args...)
	return err
}

// visible is s as a terminal may see it: control characters escaped.
func visible(s string) string {
	if !strings.ContainsFunc(s, isControl) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if isControl(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func isControl(r rune) bool {
	return r < ' ' || r >= 0x7f && r < 0xa0 || r == '\u2028' || r == '\u2029' || r >= '\u202a' && r <= '\u202e'
}
