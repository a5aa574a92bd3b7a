#!/bin/sh
# Takes ssh's place for mpirun: HOST COMMAND… runs the command in the network namespace HOST, as a machine of that name.
host=$1
shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
