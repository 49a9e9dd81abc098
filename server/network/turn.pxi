# Staged partitions of one turn of the event loop, and what their responses wait for.

cdef enum:
    # A turn ends with the request that brings it to so many bytes. On ext4 a write of several megabytes cost
    # up to three times as much for each byte: they come from memory, not from a cache, and go to huge pages.
    TURN_BYTES_MAX = 524288

cdef object _committed = _COMMITTED


cdef class Turn:
    cdef list _followers
    cdef readonly object loop
    cdef object _newest
    cdef list _touched
    cdef readonly object flushes
    cdef readonly bint is_scheduled
    cdef readonly int64_t number
    cdef readonly dict staged
    cdef int64_t _staged_bytes
    cdef bint _is_ending

    def __init__(self, loop):
        self._followers = []
        self.loop = loop
        self._newest = None
        self._touched = []
        self.flushes = _Flushes(loop)
        self.is_scheduled = False
        self.number = 0
        self.staged = {}
        self._staged_bytes = 0
        self._is_ending = False

    @property
    def is_flushing(self):
        return self.flushes.is_busy

    @property
    def is_idle(self):
        return not self.is_scheduled and not self.flushes.is_busy

    def add(self, partition, done, until):
        self._add(partition, done, until)

    cdef _add(self, partition, done, until):
        waiting = self.staged.get(partition)
        if waiting is None:
            self.staged[partition] = [(done, until)]
            self._schedule()
        else:
            (<list> waiting).append((done, until))

    cdef _count(self, int64_t size_bytes):
        """Count a served request of so many bytes, and end the turn if that makes it too long.

        The end of a turn serves connections that were held. It ends no turn inside itself: many would nest.
        """
        if self.staged:
            self._staged_bytes += size_bytes
            if self._staged_bytes >= TURN_BYTES_MAX and not self._is_ending:
                self._end()

    def flush_in_background(self, partition):
        self.flushes.add_background(partition)

    def touch(self, sender):
        self._touch(sender)

    def follow(self, callback):
        self._followers.append(callback)
        if len(self._followers) == 1:
            self.loop.call_soon(self._call_followers)

    def end(self):
        self._end()

    def close(self):
        self.flushes.close()

    cdef _schedule(self):
        if not self.is_scheduled:
            self.is_scheduled = True
            self.loop.call_soon(self._end_in_time)

    cdef _touch(self, sender):
        self._touched.append(sender)
        self._schedule()

    cpdef bint begin_alone(self, sender):
        """Whether the requests of `sender` are a turn of their own, which it ends by `end_alone`.

        So it is when it sent the requests before these as well: then it seems to be the only one, and there
        is nobody to wait for. To go round through the event loop would only make its response late.
        """
        if self._newest is not sender:
            self._newest = sender
            return False
        if self.is_scheduled:
            return False
        self.is_scheduled = True
        return True

    cpdef end_alone(self):
        """Requests that staged nothing and wait for nothing do not count as a turn."""
        if self.staged or self._touched:
            self._end()
        else:
            self.is_scheduled = False

    cpdef forget(self, sender):
        if self._newest is sender:
            self._newest = None

    def _call_followers(self):
        cdef list followers
        self._end_in_time()
        followers = self._followers
        self._followers = []
        for callback in followers:
            try:
                callback()
            except Exception:
                _turn_logger.exception("callback after the end of a turn failed")

    def _end_in_time(self):
        if self.is_scheduled:
            self._end()

    cdef _end(self):
        cdef dict staged = self.staged
        cdef list touched
        cdef bint was_ending = self._is_ending
        self._is_ending = True
        self.is_scheduled = False
        self._staged_bytes = 0
        self.number += 1
        if staged:
            self.staged = {}
            for partition, waiting in staged.items():
                self._commit(partition, waiting)
        self.flushes.start()
        while self._touched:
            touched = self._touched
            self._touched = []
            for sender in touched:
                try:
                    sender.send_ready()
                except Exception:
                    _turn_logger.exception("sending answers failed")
        self._is_ending = was_ending

    cdef _commit(self, partition, list waiting):
        cdef list groups = None
        cdef _Replicating group = None
        error = None
        try:
            partition.commit()
        except _KafkaError as refused:
            error = refused
        except Exception:
            _turn_logger.exception("commit of %s failed", partition)
            error = _KafkaError(_ErrorCode.KAFKA_STORAGE_ERROR)
        for done, until in waiting:
            try:
                if until is _committed or error is not None:
                    done(error)
                elif not until.replicated:
                    self.flushes.add(partition, done)
                elif group is not None and (until is group.until or until == group.until):
                    group.all.append(done)
                else:
                    group = _Replicating(self.loop, partition, done, until)
                    if groups is None:
                        groups = []
                    groups.append(group)
            except Exception:
                _turn_logger.exception("callback after commit failed")
        if groups is not None:
            self._wait_for_replicas(partition, groups)

    cdef _wait_for_replicas(self, partition, list groups):
        """First for the disk, then for the replicas, which fetch what is committed meanwhile."""
        cdef _Replicating group
        for group in groups:
            try:
                if group.until.flushed:
                    self.flushes.add(partition, group)
                else:
                    group(None)
            except Exception:
                _turn_logger.exception("waiting after a commit failed")


cdef class _Replicating:
    """All that a turn has staged in a partition with the same conditions: waits for the high watermark once the
    disk has it, not longer than `patience_ms` if that is not 0."""

    cdef object loop
    cdef object partition
    cdef object offset
    cdef object until
    cdef list all  # called at the end, in this order
    cdef object timer

    def __init__(self, loop, partition, done, until):
        self.loop = loop
        self.partition = partition
        self.offset = partition.log_end_offset
        self.until = until
        self.all = [done]
        self.timer = None

    def __call__(self, error):
        if error is not None:
            self.settle(error)
            return
        self.partition.when_high_watermark(self.offset, self.settle)
        if self.all is not None and self.until.patience_ms:
            self.timer = self.loop.call_later(self.until.patience_ms / 1000, self.expire)

    def settle(self, error):
        """Once: whoever has timed out waits no more, and what comes later is of no use."""
        waiting, self.all = self.all, None
        timer, self.timer = self.timer, None
        self.partition = None
        if timer is not None:
            timer.cancel()
        for done in waiting or ():
            try:
                done(error)
            except Exception:
                _turn_logger.exception("callback after replication failed")

    def expire(self):
        self.timer = None
        self.partition.forget_high_watermark(self.offset, self.settle)
        self.settle(_KafkaError(_ErrorCode.REQUEST_TIMED_OUT))
